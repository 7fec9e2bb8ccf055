"""The machine: platforms, sharding over devices, program layouts, memory, processes, clusters."""
