#!/bin/sh
# README's first hour on a bare system, in a folder: `make demo`, then the wheel and a verdict of one's own, with the
# seconds of each. Needs root and debootstrap; the system is kept under build/, its oncall is not.
#   packaging/userland.sh bookworm|trixie|noble
set -eu
release=$1
case $release in
  noble) mirror=http://archive.ubuntu.com/ubuntu script=/usr/share/debootstrap/scripts/gutsy components=main,universe ;;
  *) mirror=http://deb.debian.org/debian script=/usr/share/debootstrap/scripts/sid components=main ;;
esac
keyring=/usr/share/keyrings/$([ "$release" = noble ] && echo ubuntu || echo debian)-archive-keyring.gpg
[ -e "$keyring" ] || { echo "$release: not run: $keyring is missing, so its packages could not be verified" >&2; exit 77; }
bare=build/userland-$release
if [ ! -e "$bare/made" ]; then
  rm -rf "$bare"
  debootstrap --variant=minbase --components=$components --include=python3,make,ca-certificates \
    --keyring="$keyring" "$release" "$bare" "$mirror" "$script" >"$bare.log" 2>&1 || { tail "$bare.log" >&2; exit 1; }
  rm -rf "$bare"/var/lib/apt/lists/*
  touch "$bare/made"
fi
system=$bare.used
rm -rf "$system"
cp -a "$bare" "$system"
mkdir -p "$system/root/oncall"
git archive HEAD | tar -x -C "$system/root/oncall"
cp dist/oncall_console-*x86_64.whl "$system/root/"
# How this machine reaches its package index, if not directly: its certificates, its settings of pip.
cp /etc/resolv.conf "$system/etc/"
cp "${PIP_CERT:-/etc/ssl/certs/ca-certificates.crt}" "$system/etc/ssl/certs/ca-certificates.crt"
cat >"$system/root/hour" <<'HOUR'
set -eu
took() { now=$(date +%s); echo "== $1: $((now - since)) s"; since=$now; }
since=$(date +%s)
cd /root/oncall
make demo
took "make demo"
apt-get install -y -q python3-venv >/dev/null
since=$(date +%s)
cd /root
python3 -m venv wheel
wheel/bin/pip install --quiet oncall_console-*.whl
took "the wheel installed"
code=0
wheel/bin/oncall diagnose oncall/fixtures/flight_recorder/not_entered --symptom hung || code=$?
took "the first verdict"
[ $code = 1 ]
HOUR
unshare --mount sh -eu -c '
  mount --bind /dev "$0/dev"; mount -t proc proc "$0/proc"; mount -t tmpfs tmpfs "$0/dev/shm"
  exec chroot "$0" env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 \
    PIP_CERT=/etc/ssl/certs/ca-certificates.crt PIP_ROOT_USER_ACTION=ignore \
    ${PIP_INDEX_URL:+PIP_INDEX_URL=$PIP_INDEX_URL} sh /root/hour
' "$system"
rm -rf "$system"
