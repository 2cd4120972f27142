# SPDX-License-Identifier: Apache-2.0
"""Targets of deployment files, one module each, by the name that a user states."""

from aicjax.deploy.targets import bare_metal, dynamo, kubernetes, llm_d_helm, llm_d_kustomize, slurm
from aicjax.deploy.targets.target import Target

TARGETS: dict[str, Target] = {
    "bare-metal": bare_metal.TARGET,
    "slurm": slurm.TARGET,
    "dynamo": dynamo.BETA,
    "dynamo-v1alpha1": dynamo.ALPHA,
    "kubernetes": kubernetes.TARGET,
    "llm-d-helm": llm_d_helm.TARGET,
    "llm-d-kustomize": llm_d_kustomize.TARGET,
}
