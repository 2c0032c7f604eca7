#!/bin/sh
# torchft: every worker is a replica group of one process, started by its own torchrun. Rank 0 also runs the lighthouse.
export TORCHFT_LIGHTHOUSE="http://$MASTER_ADDR:29510" REPLICA_GROUP_ID="$RANK" NUM_REPLICA_GROUPS="$WORLD_SIZE"
if [ "$RANK" = 0 ]; then
    torchft_lighthouse --min_replicas "$WORLD_SIZE" --join_timeout_ms 10000 --bind "[::]:29510" &
fi
exec torchrun --nnodes 1 --nproc-per-node 1 --rdzv-backend c10d --rdzv-endpoint "$(hostname):29520" \
    "$(dirname "$0")/with_torchft.py"
