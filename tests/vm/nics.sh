# Soft RoCE devices on a bridge that plays the switch: source it with their number.
#
#     rxe0 on nic0, 10.77.0.1 ---- port0  bridge  port1 ---- rxe1 on nic1, 10.77.0.2
#
# Within one network namespace the kernel would deliver packets between its own addresses over
# loopback, so routes by rule send them out first; rxe of Linux 6.1 serves the first namespace only.
modprobe -a rdma_rxe ib_uverbs veth bridge sch_netem crc32_generic
for setting in accept_local=1 rp_filter=0 arp_ignore=1 arp_announce=2; do
    for place in all default; do
        echo "${setting#*=}" > "/proc/sys/net/ipv4/conf/$place/${setting%=*}"
    done
done
echo 0 > /proc/sys/net/ipv6/conf/default/accept_dad
ip link add bridge type bridge
ip link set bridge mtu 4200 up
last=$(($1 - 1))
for number in $(seq 0 $last); do
    address=10.77.0.$((number + 1))
    ip link add "nic$number" type veth peer name "port$number"
    ip link set "port$number" mtu 4200 master bridge up
    ip addr add "$address/24" dev "nic$number"
    ip link set "nic$number" mtu 4200 up
    ip rule add pref 10 iif "nic$number" lookup local
    ip rule add pref $((100 + number)) from "$address" lookup $((1000 + number))
    ip route add 10.77.0.0/24 dev "nic$number" src "$address" table $((1000 + number))
done
ip rule add pref 500 lookup local
ip rule del pref 0
for number in $(seq 0 $last); do rdma link add "rxe$number" type rxe netdev "nic$number"; done
