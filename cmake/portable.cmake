# The compiler of everything that is installed: zig's clang, which links against glibc 2.17 on
# whatever machine it runs, so that a library built here loads in every image a job may come in.
# A toolchain file; CMakeLists.txt names it, and src/oncall/native/portability.py checks the result.
if(CMAKE_HOST_SYSTEM_PROCESSOR MATCHES "^(x86_64|amd64|AMD64)$")
  set(this_machine x86_64)
elseif(CMAKE_HOST_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
  set(this_machine aarch64)
else()
  set(this_machine "")
endif()
if(NOT CMAKE_HOST_SYSTEM_NAME STREQUAL "Linux" OR NOT this_machine)
  return() # CMakeLists.txt compiles nothing there
endif()

set(ONCALL_ARCHITECTURES x86_64 aarch64)
set(ONCALL_ARCHITECTURE ${this_machine} CACHE STRING "what to compile for: x86_64 or aarch64")
if(NOT ONCALL_ARCHITECTURE IN_LIST ONCALL_ARCHITECTURES)
  message(FATAL_ERROR "ONCALL_ARCHITECTURE is ${ONCALL_ARCHITECTURE}: x86_64 or aarch64 is meant")
endif()

# zig comes as a Python package; whoever has it otherwise names it.
if(NOT Python_EXECUTABLE)
  find_program(Python_EXECUTABLE NAMES python3 python REQUIRED)
endif()
if(NOT ONCALL_ZIG)
  execute_process(
    COMMAND ${Python_EXECUTABLE} -c
      "import pathlib, ziglang; print(pathlib.Path(ziglang.__file__).parent / 'zig')"
    OUTPUT_VARIABLE found OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  set(ONCALL_ZIG "${found}" CACHE FILEPATH "zig, which compiles what is installed" FORCE)
endif()
if(NOT EXISTS "${ONCALL_ZIG}")
  message(FATAL_ERROR
    "no zig to compile with: `${Python_EXECUTABLE} -m pip install ziglang`, or say where it is "
    "by -DONCALL_ZIG=/path/to/zig (through pip: --config-settings=cmake.define.ONCALL_ZIG=...). "
    "The system's own compiler would build libraries that end jobs in older images.")
endif()
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES ONCALL_ARCHITECTURE ONCALL_ZIG Python_EXECUTABLE)

# What zig compiles of its own for a target takes it seconds: all builds of a checkout share it.
set(cache "$ENV{ZIG_GLOBAL_CACHE_DIR}")
if(NOT cache)
  get_filename_component(cache "${CMAKE_CURRENT_LIST_DIR}/../build/zig" ABSOLUTE)
endif()
set(CMAKE_C_COMPILER ${CMAKE_BINARY_DIR}/zig-cc)
configure_file(${CMAKE_CURRENT_LIST_DIR}/zig-cc.in ${CMAKE_C_COMPILER} @ONLY
  FILE_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)

if(NOT ONCALL_ARCHITECTURE STREQUAL this_machine)
  set(CMAKE_SYSTEM_NAME Linux) # cross-compiling
  set(CMAKE_SYSTEM_PROCESSOR ${ONCALL_ARCHITECTURE})
  # Tests run where the emulator is, in the C library of Debian's libc6-*-cross.
  set(CMAKE_CROSSCOMPILING_EMULATOR
    qemu-${ONCALL_ARCHITECTURE};-L;/usr/${ONCALL_ARCHITECTURE}-linux-gnu)
endif()
