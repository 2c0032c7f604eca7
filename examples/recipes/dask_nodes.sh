#!/bin/sh
# A Dask cluster: rank 0 runs the scheduler and the program, all ranks a worker.
export DASK_DISTRIBUTED__SCHEDULER__ACTIVE_MEMORY_MANAGER__START=False
if [ "$RANK" = 0 ]; then
    dask scheduler --host "$WANBENCH_ADDRESS" --port 8786 --no-dashboard &
fi
dask worker "tcp://$MASTER_ADDR:8786" --nthreads 1 --no-dashboard --no-nanny --death-timeout 60 --local-directory "$TMPDIR" &
if [ "$RANK" = 0 ]; then
    python "$(dirname "$0")/with_dask.py"
    exit
fi
wait
