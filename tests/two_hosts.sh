# Trains on two hosts: namespaces with a cable between them, where each host's own name is a loopback address.
# Usage: unshare -num bash two_hosts.sh FOLDER TORCHRUN; FOLDER holds train.py and, where there is one, cure.HOST.
set -u
folder=$1 torchrun=$2

become() { # name, name and address of the other host
    printf '127.0.0.1 localhost\n127.0.1.1 %s\n%s %s\n' "$1" "$3" "$2" > "$folder/hosts.$1"
    hostname "$1" && mount --bind "$folder/hosts.$1" /etc/hosts && ip link set lo up
}

train() { # rank of the node, its name
    [ -f "$folder/cure.$2" ] && . "$folder/cure.$2"
    timeout -k 1 60 "$torchrun" --nnodes 2 --nproc-per-node 1 --node-rank "$1" --master-addr 10.77.0.1 \
        --master-port 29500 "$folder/train.py" > "$folder/$2.log" 2>&1
}

if [ "${3:-}" = second ]; then
    until ip link show eth0 > /dev/null 2>&1; do sleep 0.05; done
    become node1 node0 10.77.0.1
    ip addr add 10.77.0.2/24 dev eth0 && ip link set eth0 up
    train 1 node1
    exit
fi
become node0 node1 10.77.0.2
ip link add eth0 type veth peer name eth1 && ip addr add 10.77.0.1/24 dev eth0 && ip link set eth0 up
unshare -num bash "$0" "$folder" "$torchrun" second &
second=$!
until ip link set eth1 netns "$second" name eth0 2> /dev/null; do sleep 0.05; done
train 0 node0
status=$?
[ "$status" = 0 ] || pkill -TERM -P "$second" # the other host waits, and would go on waiting
wait
exit "$status"
