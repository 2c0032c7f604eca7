#!/bin/sh
# A Ray cluster, a node for each worker. Rank 0 runs the head and then the program.
export RAY_USAGE_STATS_ENABLED=0 RAY_DISABLE_IMPORT_WARNING=1
if [ "$RANK" = 0 ]; then
    ray start --head --num-cpus 1 --port 6379 --include-dashboard=false --object-store-memory 80000000
    python "$(dirname "$0")/with_ray.py"
    status=$?
    ray stop
    exit $status
fi
until ray start --address "$MASTER_ADDR:6379" --num-cpus 1 --object-store-memory 80000000; do sleep 1; done
while ray status --address "$MASTER_ADDR:6379" >/dev/null 2>&1; do sleep 1; done
ray stop
