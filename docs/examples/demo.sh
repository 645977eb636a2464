#!/bin/sh
# The main job on the logs that the project ships: measured logs, a calibrated platform, fitted
# models, and their predictions against rows that neither has seen.
# Usage: demo.sh OUTPUT_FOLDER
set -eu
out=$1
testbed=$(dirname "$0")/testbed
mkdir -p "$out"

# Named before anything was measured, in testbed/record.py: 6 and 8 hosts, and these batch sizes.
held_out="n_nodes > 4 or batch_per_gpu in [6, 12, 24, 48]"

say() {
    printf '\n%s\n\n' "$*"
}

show() { # print a command, then run it
    printf '$ '
    for word; do
        case $word in *' '*) printf "'%s' " "$word" ;; *) printf '%s ' "$word" ;; esac
    done
    printf '\n'
    "$@"
    printf '\n'
}

say "1. What was measured"
show perfmodel logs "$testbed/logs"

say "2. What training moves"
show perfmodel volumes "$testbed/small_cnn.toml" --n-nodes 1,2,4,8 --gpus-per-node 1 --batch-per-gpu 32

for rate in 200mbit 100mbit; do
    for workload in small_cnn small_transformer; do
        name=$workload-$rate
        logs=$testbed/logs/$rate
        toml=$testbed/$workload.toml
        say "3. $workload on links of $rate: a platform calibrated, a model fitted"
        show perfmodel-calibrate run testbed "$logs" --workload "$toml" --hold-out "$held_out" \
            --out "$out/$name.xml"
        show perfmodel fit "$logs" --workload "$toml" --where "not ($held_out)" \
            --out "$out/$name.model.json"
    done
done

say "4. Configurations that nobody ran"
configurations="--n-nodes 5,7 --gpus-per-node 1 --batch-per-gpu 20,40"
# shellcheck disable=SC2086
show perfmodel predict "$out/small_cnn-200mbit.model.json" $configurations
# shellcheck disable=SC2086
show perfmodel simulate "$testbed/small_cnn.toml" --platform "$out/small_cnn-200mbit.xml" $configurations

if [ -n "${PERFMODEL_CASES:-}" ] && [ -d "$PERFMODEL_CASES" ]; then
    say "5. A second platform, from a log of nccl-tests on two nodes of four H100"
    perfmodel-calibrate run gpu-pair \
        "$PERFMODEL_CASES/nccl-tests/snellius_h100/2nodes__all_reduce_mpi.log" \
        --hold-out "message_bytes in [65536, 1048576, 16777216, 268435456, 4294967296]" \
        --out "$out/gpu-pair.xml"
fi

say "6. Predicted, simulated and measured, on rows that were held out"
for rate in 200mbit 100mbit; do
    for workload in small_cnn small_transformer; do
        name=$workload-$rate
        show perfmodel-calibrate check "$out/$name.xml" "$testbed/logs/$rate" \
            --workload "$testbed/$workload.toml" --model "$out/$name.model.json" --hold-out "$held_out"
    done
done
