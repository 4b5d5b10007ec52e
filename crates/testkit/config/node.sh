# The first process of a real node: it makes the node's mounts, which nobody outside sees, and then
# reaps. $1 is the node's directory. When it ends, the kernel ends every process of the node.
set -e

# As on any node: pods may ask for mounts that spread, within these namespaces.
mount --make-rshared /
# containerd, runc, the kubelet and the CNI plugins have fixed places here.
for directory in /run /var/lib /var/log; do
    mount -t tmpfs -o mode=0755 tmpfs "$directory"
done
# The kubelet sets these for the whole machine unless they read as it wants them.
while read -r name value; do
    if [ -e "/proc/sys/$name" ]; then
        mkdir -p "/run/sysctl/$name"
        echo "$value" >"/run/sysctl/$name/value"
        mount --bind "/run/sysctl/$name/value" "/proc/sys/$name"
    fi
done <<END
vm/overcommit_memory 1
vm/panic_on_oom 0
kernel/panic 10
kernel/panic_on_oops 1
kernel/keys/root_maxkeys 1000000
kernel/keys/root_maxbytes 25000000
END

ip link set lo up
echo 1 >/proc/sys/net/ipv4/ip_forward
# Nobody else has an address of the bridge, and a search for one would delay the first pod.
if [ -e /proc/sys/net/ipv6/conf/default/accept_dad ]; then
    echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad
    echo 1 >/proc/sys/net/ipv6/conf/all/forwarding
fi
touch "$1/ready"
while :; do
    sleep 86400 &
    wait
done
