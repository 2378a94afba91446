#!/bin/sh
# Build oncall-dpa-poller with DOCA's own headers and compiler: ./build.sh [DOCA_FOLDER]
# Written from NVIDIA's published samples; never run here, for want of DOCA and a BlueField-3.
set -eu

doca=${1:-/opt/mellanox/doca}
here=$(cd "$(dirname "$0")" && pwd)
made=$here/../build/dpa
dpacc=$doca/tools/dpacc
app=oncall_pcc_app

[ -x "$dpacc" ] || { echo "$dpacc: not there; tell DOCA's folder: $0 /opt/mellanox/doca" >&2; exit 2; }
mkdir -p "$made"

# DOCA_PCC's library needs to be allowed what it does to congestion control.
attributes=$made/attributes.yaml
cat > "$attributes" <<'END'
---
Congestion_Control_Flow_Context_Access: true
Programmable_Congestion_Control: true
END

include="-I$here,-I$doca/include"
"$dpacc" -flto "$here/pcc_device.c" "$here/measurement.c" "$here/polling.c" \
  -o "$made/$app.a" -mcpu=nv-dpa-bf3 -hostcc=gcc -disable-asm-checks \
  --devicecc-options="$include,-DONCALL_DPA_DEVICE,-DSIMX_BUILD,-DE_MODE_LE,-ffreestanding,-mcmodel=medany,-ggdb,-O2" \
  -device-libs="-L$doca/lib -ldoca_pcc_dev" --app-name="$app" --keep-dir="$made" \
  --dpa-proc-attr="$attributes"

PKG_CONFIG_PATH=$doca/lib/x86_64-linux-gnu/pkgconfig:${PKG_CONFIG_PATH:-}
export PKG_CONFIG_PATH
# shellcheck disable=SC2046 # flags are several words
gcc -std=gnu11 -O2 -DDOCA_ALLOW_EXPERIMENTAL_API -I"$here" "$here/poller.c" "$made/$app.a" \
  $(pkg-config --cflags --libs doca-pcc doca-common libflexio) -o "$made/oncall-dpa-poller"
echo "$made/oncall-dpa-poller"
