#!/bin/bash
# Boots the virtual machine and runs a script in it as root: run.sh IMAGE PROJECT SCRIPT [SECONDS]
#
# PROJECT is read-only at /project; what the script writes into /control comes back beside its
# output in $CONTROL, if that is set. Leaves with the script's exit code, or with 125 if the machine gave none.
# Software emulation: no KVM, no privilege, no network.
set -euo pipefail

image=$1 project=$2 script=$3 limit_s=${4:-300}
control=${CONTROL:-}
if [ -z "$control" ]; then
    control=$(mktemp -d)
    trap 'rm -rf "$control"' EXIT
fi
rm -f "$control/exit_code"
cp "$script" "$control/script"

kernel_options="console=ttyS0 quiet loglevel=3 panic=-1 mitigations=off nokaslr random.trust_cpu=on
    tsc=reliable nowatchdog audit=0 apparmor=0 selinux=0 cgroup_disable=memory rcupdate.rcu_expedited=1"
share() { # TAG FOLDER OPTIONS: a folder of this machine as a 9p device
    echo "-fsdev local,id=$1,path=$2,security_model=none$3 -device virtio-9p-pci,fsdev=$1,mount_tag=$1"
}

timeout --kill-after=5 "$limit_s" qemu-system-x86_64 \
    -M q35,hpet=off -accel tcg,thread=multi,tb-size=256 -cpu max,la57=off -smp 2 -m 768 \
    -nodefaults -no-user-config -display none -serial stdio -no-reboot -net none \
    -kernel "$image/vmlinux" -initrd "$image/initrd.cpio" -append "$(echo $kernel_options)" \
    -drive "file=$image/root.squashfs,if=none,id=root,format=raw,readonly=on" \
    -device virtio-blk-pci,drive=root -device virtio-rng-pci \
    $(share project "$project" ",readonly=on,multidevs=remap") $(share control "$control" "") \
    < /dev/null > "$control/console" 2>&1 || true

if [ ! -f "$control/exit_code" ]; then
    echo "the virtual machine gave no exit code within $limit_s s; the end of its console:" >&2
    tail -n 25 "$control/console" >&2
    exit 125
fi
cat "$control/output"
exit "$(cat "$control/exit_code")"
