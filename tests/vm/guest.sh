set -e
. /project/tests/vm/two_nics.sh
export PYTHONPATH=/project/src PYTHONDONTWRITEBYTECODE=1
python3 /project/tests/vm/guest.py
