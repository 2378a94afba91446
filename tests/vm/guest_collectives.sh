set -e
. /project/tests/vm/nics.sh 4
export PYTHONPATH=/project/src PYTHONDONTWRITEBYTECODE=1
python3 /project/tests/vm/guest_collectives.py
