#!/bin/bash
# Builds what the virtual machine boots from: build_image.sh FOLDER
#
#   kernel/          a Debian kernel, unpacked and never installed
#   vmlinux          the same, uncompressed: half the boot time under emulation
#   rootfs/          a minimal Debian with the verbs tools, and what oncall needs of Python
#   root.squashfs    rootfs as one file
#   initrd.cpio      mounts that file and a writable layer above it
#
# Needs root (debootstrap) and the packages of VM_PACKAGES in the Makefile. Each part is kept;
# delete the folder to build anew.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1" && cd "$1"

GUEST_PACKAGES=iproute2,kmod,rdma-core,ibverbs-providers,perftest,python3,python3-pyverbs
BOOT_MODULES="virtio_pci virtio_blk 9pnet_virtio 9p overlay squashfs virtio_rng"
# rxe asks the crypto API for crc32 by name, so these are no dependencies that modprobe knows.
RDMA_MODULES="rdma_rxe crc32_generic crc32-pclmul ib_uverbs veth bridge sch_netem"

unpack_kernel() {
    [ -d kernel ] && return
    local package
    package=$(apt-cache depends linux-image-amd64 | awk '/Depends: linux-image-6/ {print $2; exit}')
    rm -rf kernel.part && mkdir kernel.part
    (cd kernel.part && apt-get download -q "$package" && dpkg -x ./*.deb . && rm ./*.deb)
    depmod -b kernel.part "$(ls kernel.part/lib/modules)"
    python3 "$here/extract_vmlinux.py" kernel.part/boot/vmlinuz-* vmlinux
    mv kernel.part kernel
}

bootstrap() {
    [ -d rootfs ] && return
    rm -rf rootfs.part
    debootstrap --variant=minbase --include="$GUEST_PACKAGES" bookworm rootfs.part > debootstrap.log
    # Wheels of the guest's Python, whichever Python runs here.
    python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore \
        --target rootfs.part/usr/local/lib/python3.11/dist-packages \
        --python-version 3.11 --platform manylinux_2_28_x86_64 --platform manylinux2014_x86_64 \
        --only-binary=:all: 'duckdb>=2.0,<3' 'numpy>=2.0'
    mv rootfs.part rootfs
}

# The files of modules and of what they depend on, each once, in the order of loading.
module_files() {
    for module in "$@"; do
        modprobe --dirname "$PWD/kernel" --set-version "$version" --show-depends "$module"
    done | awk '$1 == "insmod" && !seen[$2]++ {print $2}'
}

install_modules() {
    rm -rf rootfs/lib/modules && mkdir -p "rootfs/lib/modules/$version"
    module_files $BOOT_MODULES $RDMA_MODULES | while read -r file; do
        install -D -m 644 "$file" "rootfs${file#"$PWD/kernel"}"
    done
    cp "kernel/lib/modules/$version"/modules.{order,builtin,builtin.modinfo} "rootfs/lib/modules/$version/"
    depmod -b rootfs "$version"
}

pack_root() {
    install -m 755 "$here/guest_init.sh" rootfs/sbin/guest-init
    mkdir -p rootfs/project rootfs/control
    rm -f root.squashfs
    mksquashfs rootfs root.squashfs -comp lz4 -noappend -quiet -no-progress \
        -e var/cache/apt var/lib/apt usr/share/doc usr/share/man usr/share/locale
}

pack_initrd() {
    rm -rf initrd && mkdir -p initrd/{bin,dev,proc,sys,lower,upper,root,modules}
    cp "$(command -v busybox)" initrd/bin/busybox
    module_files $BOOT_MODULES | while read -r file; do
        cp "$file" initrd/modules/
        basename "$file" >> initrd/modules/order
    done
    install -m 755 "$here/initrd_init.sh" initrd/init
    (cd initrd && find . | cpio --create --format=newc --quiet) > initrd.cpio
}

# Nothing changed since it was built.
changed=$(find "$here"/{build_image,guest_init,initrd_init}.sh -newer initrd.cpio 2>&1 || true)
[ -z "$changed" ] && exit 0

unpack_kernel
version=$(ls kernel/lib/modules)
bootstrap
install_modules
pack_root
pack_initrd
