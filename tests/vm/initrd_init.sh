#!/bin/busybox sh
# The first process: the root file system, with a layer in memory above it that may be written.
B=/bin/busybox
$B mount -t proc proc /proc
$B mount -t sysfs sys /sys
$B mount -t devtmpfs dev /dev
while read -r module; do $B insmod "/modules/$module"; done < /modules/order
tries=0
while [ ! -b /dev/vda ] && [ $tries -lt 100 ]; do $B sleep 0.1; tries=$((tries + 1)); done
$B mount -t squashfs -o ro /dev/vda /lower
$B mount -t tmpfs -o mode=755 tmpfs /upper
$B mkdir /upper/files /upper/work
$B mount -t overlay -o lowerdir=/lower,upperdir=/upper/files,workdir=/upper/work overlay /root
for place in proc sys dev; do $B mount --move /$place /root/$place; done
exec $B switch_root /root /sbin/guest-init
