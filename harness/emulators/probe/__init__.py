"""The probe, which measures what an emulator built: delay, jitter, loss, rate and order of every path."""
