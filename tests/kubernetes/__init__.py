"""Checks k8s/ against Kubernetes' schemas, itself, and Faultline's interfaces."""
