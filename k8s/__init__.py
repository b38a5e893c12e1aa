"""Faultline on Kubernetes: kustomize, a Helm chart, and code generators."""
