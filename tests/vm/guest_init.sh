#!/bin/bash
# Runs /control/script in /project, leaves its output and exit code in /control, powers off.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8
mount -t tmpfs -o mode=755 tmpfs /run
mount -t tmpfs tmpfs /tmp
mkdir -p /dev/shm /dev/pts
mount -t tmpfs tmpfs /dev/shm
mount -t devpts devpts /dev/pts
ln -sfn /proc/self/fd /dev/fd
share=trans=virtio,version=9p2000.L,msize=512000
mount -t 9p -o "ro,cache=loose,$share" project /project
mount -t 9p -o "rw,$share" control /control
ip link set lo up
hostname guest
ulimit -l unlimited -c 0
cd /project
bash /control/script < /dev/null > /control/output 2>&1
echo $? > /control/exit_code
sync
echo o > /proc/sysrq-trigger
sleep 10
