"""k8s/ held against Kubernetes' schemas, against itself, and against what Faultline reads and serves."""
