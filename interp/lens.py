"""The one contact with TransformerLens: what the suite takes from it, on 3.9 and on 4.

    from interp.lens import HookedTransformer, HookedTransformerConfig

HookedTransformer left TransformerLens in release 4. There these names are `Decoder` and `DecoderConfig` of the suite
(`interp.hooked.decoder`), with the same hooks, parameters and numbers.

TransformerLens imports `transformers` and `datasets` for pretrained models. That is two thirds of the time that its
import takes, and the suite's own models need neither. They are imported when something of theirs is used, such as a
tokenizer (`interp.deferred`).
"""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

from interp.deferred import import_without

# TransformerLens looks for this package during its import. Few have it; where it is installed, all is imported as
# usual.
QUANTISING = "bitsandbytes"
if importlib.util.find_spec(QUANTISING) is None:
    import_without("transformer_lens", ("transformers", "datasets"), answers={f"is_{QUANTISING}_available": False})

# ruff: noqa: E402  imported as above before these names are taken from it
from transformer_lens import FactoredMatrix
from transformer_lens.cache.key_value_cache_entry import TransformerLensKeyValueCacheEntry as KeyValueCacheEntry
from transformer_lens.utilities.attention import simple_attn_linear

if TYPE_CHECKING:
    from transformer_lens import HookedTransformer, HookedTransformerConfig
    from transformer_lens.components.attention import Attention
    from transformer_lens.components.embed import Embed
    from transformer_lens.components.transformer_block import TransformerBlock
    from transformer_lens.components.unembed import Unembed
else:
    try:
        from transformer_lens import HookedTransformer, HookedTransformerConfig
    except ImportError:
        from interp.hooked.decoder import Attention, Embed, TransformerBlock, Unembed
        from interp.hooked.decoder import Decoder as HookedTransformer
        from interp.hooked.decoder import DecoderConfig as HookedTransformerConfig
    else:
        from transformer_lens.components.attention import Attention
        from transformer_lens.components.embed import Embed
        from transformer_lens.components.transformer_block import TransformerBlock
        from transformer_lens.components.unembed import Unembed

__all__ = [
    "Attention",
    "Embed",
    "FactoredMatrix",
    "HookedTransformer",
    "HookedTransformerConfig",
    "KeyValueCacheEntry",
    "TransformerBlock",
    "Unembed",
    "simple_attn_linear",
]
