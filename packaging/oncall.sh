#!/bin/sh
# bin/oncall of the tarball: finds the Python that its libraries were compiled for, and starts oncall.
# python/ beside lib/ is a place for an interpreter of its own, where a node has none of that version.
folder=$(dirname -- "$(dirname -- "$(readlink -f -- "$0")")")
wanted=@PYTHON@
for python in "$ONCALL_PYTHON" "$folder/python/bin/python3" "python$wanted" python3; do
  if command -v -- "$python" >/dev/null 2>&1 && "$python" -Ic \
    "import sys; sys.exit('%d.%d' % sys.version_info[:2] != '$wanted')" 2>/dev/null; then
    # -I: what a job's environment sets for its own Python is not for this one.
    exec "$python" -I "$folder/lib" "$@"
  fi
done
echo "oncall: Python $wanted was not found on this machine; install it, set ONCALL_PYTHON to it, or" \
  "unpack one into $folder/python" >&2
exit 2
