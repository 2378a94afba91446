# The hooks for the machines that jobs run on and this is not: a bastion of x86_64 may prepare what
# nodes of aarch64 preload. Each is a build of its own of this same project.
include(ExternalProject)
set(others ${ONCALL_ARCHITECTURES})
list(REMOVE_ITEM others ${ONCALL_ARCHITECTURE})
foreach(architecture ${others})
  set(folder ${CMAKE_BINARY_DIR}/${architecture})
  ExternalProject_Add(hooks_${architecture}
    SOURCE_DIR ${CMAKE_SOURCE_DIR}
    BINARY_DIR ${folder}/build
    PREFIX ${folder}
    CMAKE_ARGS
      -DONCALL_ARCHITECTURE=${architecture} -DONCALL_HOOKS_ONLY=ON -DONCALL_ZIG=${ONCALL_ZIG}
      -DPython_EXECUTABLE=${Python_EXECUTABLE} -DCMAKE_MAKE_PROGRAM=${CMAKE_MAKE_PROGRAM}
      -DCMAKE_INSTALL_PREFIX=${folder}/installed
    BUILD_ALWAYS ON) # its own build knows what is out of date
  install(DIRECTORY ${folder}/installed/${ONCALL_NATIVE}/${architecture}
    DESTINATION ${ONCALL_NATIVE} USE_SOURCE_PERMISSIONS)
endforeach()
