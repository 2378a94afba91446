# Two soft RoCE devices whose packets really cross a veth pair: source it.
#
# Within one network namespace the kernel would deliver packets between its own addresses over
# loopback, so routes by rule send them out first; rxe of Linux 6.1 serves the first namespace only.
modprobe -a rdma_rxe ib_uverbs veth sch_netem crc32_generic
ip link add veth0 type veth peer name veth1
for number in 0 1; do
    for setting in accept_local=1 rp_filter=0; do
        echo "${setting#*=}" > "/proc/sys/net/ipv4/conf/veth$number/${setting%=*}"
    done
    ip addr add "10.77.0.$((number + 1))/24" dev "veth$number"
    ip link set "veth$number" mtu 4200 up
done
echo 0 > /proc/sys/net/ipv4/conf/all/rp_filter
echo 1 > /proc/sys/net/ipv4/conf/all/accept_local
ip rule add pref 10 iif veth0 lookup local
ip rule add pref 11 iif veth1 lookup local
ip rule add pref 20 lookup 77
ip route add 10.77.0.2/32 dev veth0 src 10.77.0.1 table 77
ip route add 10.77.0.1/32 dev veth1 src 10.77.0.2 table 77
ip rule add pref 100 lookup local
ip rule del pref 0
rdma link add rxe0 type rxe netdev veth0
rdma link add rxe1 type rxe netdev veth1
