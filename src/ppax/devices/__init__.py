"""What ppax knows of the machine: platforms, sharding over devices, program layouts, memory, processes, clusters."""
