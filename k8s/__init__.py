"""Faultline on Kubernetes: kustomize, a Helm chart, and what writes the parts that are said elsewhere."""
