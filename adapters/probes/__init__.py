"""What reads the machine: one file per source, each behind ``contracts.ports.Probe``."""
