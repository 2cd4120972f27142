# SPDX-License-Identifier: Apache-2.0
"""Models: configs, number formats, layouts and operator lists. Host code, numpy at most."""

from aicjax.models.checks import check_parallel as check_parallel
from aicjax.models.families.vision import Images as Images
from aicjax.models.families.vision import encoder_ops as encoder_ops
from aicjax.models.families.vision import encoder_stages as encoder_stages
from aicjax.models.families.vision import request_images as request_images
from aicjax.models.families.vision import with_encoder as with_encoder
from aicjax.models.families.vision import without_encoder as without_encoder
from aicjax.models.kvcache import KvCache as KvCache
from aicjax.models.kvcache import KvTerm as KvTerm
from aicjax.models.large_ep import LargeEp as LargeEp
from aicjax.models.large_ep_choice import Coverage as Coverage
from aicjax.models.large_ep_choice import choose_large_ep as choose_large_ep
from aicjax.models.large_ep_choice import measured_exchanges as measured_exchanges
from aicjax.models.load import load_model as load_model
from aicjax.models.load import model_names as model_names
from aicjax.models.load import parse_config as parse_config
from aicjax.models.model import ModelConfig as ModelConfig
from aicjax.models.operators import kv_cache as kv_cache
from aicjax.models.operators import op_lists as op_lists
from aicjax.models.parallel import Parallel as Parallel
from aicjax.models.quantisation import Quantisation as Quantisation
from aicjax.models.quantisation import infer_quantisation as infer_quantisation
from aicjax.models.resolve import large_ep_formats as large_ep_formats
from aicjax.models.resolve import resolve_quantisation as resolve_quantisation
from aicjax.models.slim import slim_config as slim_config
