"""Training of a sweep's programs on a Ray cluster: resources, transport of run directories, workers, their driver."""
