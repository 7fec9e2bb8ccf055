"""Films: a policy plays whole episodes, and their frames become a video file; films during training."""
