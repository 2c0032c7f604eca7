"""The columns that every repetition of a training cell has, on every testbed."""

CONTRACT = {
    "run", "cell", "rep", "status", "reason", "testbed", "emulator", "collective", "channels", "workload",
    "payload_scale", "algorithm", "kind", "params", "workers", "profile", "rtt_ms", "rtt_max_ms", "rate_mbps",
    "loss_pct", "jitter_ms", "tcp", "seed", "steps", "step_time_s", "compute_s", "stall_s", "overhead_s", "scalability",
    "predicted_step_time_s", "payload_bytes", "wire_bytes", "messages_sent", "final_loss", "accuracy",
    "time_to_target_s", "one_way_error_ms", "lateness_p99_ms", "host_cpu_pct",
}  # fmt: skip
