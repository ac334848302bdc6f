#!/bin/sh
# A sweep as a Slurm job array: one shard per array task, no coordinator. Submit with
#
#     mkdir -p results && sbatch --array=1-8 examples/sweep/slurm.sh
#
# and merge the shards when all are done:
#
#     shootdown sweep --merge results/part-*.csv -o results/all.csv
#
# A requeued task resumes: finished runs are in part-N.csv.journal. Requeue the same number of tasks, since
# the shares of 1/8 and 1/9 differ. To try it without Slurm:
#
#     for i in 1 2 3; do SLURM_ARRAY_TASK_ID=$i SLURM_ARRAY_TASK_COUNT=3 sh examples/sweep/slurm.sh; done
#
#SBATCH --job-name=shootdown-sweep
#SBATCH --cpus-per-task=4
#SBATCH --time=01:00:00
#SBATCH --requeue
set -eu

shootdown=${SHOOTDOWN:-shootdown}
results=${RESULTS:-results}
index=${SLURM_ARRAY_TASK_ID:?not in a job array: submit with sbatch --array=1-8, or set it by hand}
count=${SLURM_ARRAY_TASK_COUNT:?not in a job array: submit with sbatch --array=1-8, or set it by hand}

mkdir -p "$results"
# Options of this script replace the sweep below: sbatch --array=1-8 slurm.sh tlb_flush2 --threads 2 ...
if [ $# -eq 0 ]; then
    set -- tlb_flush2 --on milan-72 --designs ipi,broadcast,adaptive --threads 2,16,all --set costs.ipi_send=200..4000:log:8
fi
exec "$shootdown" sweep "$@" \
    --shard "$index/$count" --jobs "${SLURM_CPUS_PER_TASK:-1}" -o "$results/part-$index.csv"
