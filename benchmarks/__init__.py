# SPDX-License-Identifier: Apache-2.0
"""Agreement with AIConfigurator 0.12.0, throughput of sweeps, and time of whole searches beside it."""
