# SPDX-License-Identifier: Apache-2.0
"""Targets of deployment files, one module each, by the name that a user states."""

from aicjax.deploy.targets import bare_metal, dynamo
from aicjax.deploy.targets.target import Target

TARGETS: dict[str, Target] = {"bare-metal": bare_metal.TARGET, "dynamo": dynamo.BETA, "dynamo-v1alpha1": dynamo.ALPHA}
