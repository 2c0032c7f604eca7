#!/bin/sh
# One run on up to 20 nodes of a SLURM cluster, as they become free:   sbatch slurm.sh SPEC
# Every task of the array is the same command. Submit it in a folder that all nodes see. When the time is over, submit it
# again: it continues.
#SBATCH --job-name=wanbench
#SBATCH --array=0-19
#SBATCH --nodes=1
#SBATCH --exclusive
#SBATCH --time=04:00:00
#SBATCH --signal=TERM@60
#SBATCH --output=wanbench-%A_%a.log
# --exclusive: another job on the node would disturb an emulated run. --signal: a minute to end in order.
exec srun wanbench run "$1"
