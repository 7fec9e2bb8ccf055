"""The machine: platforms, sharding over devices, layout of programs, memory, processes and clusters."""
