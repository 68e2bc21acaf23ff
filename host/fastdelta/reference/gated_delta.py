# SPDX-License-Identifier: Apache-2.0
"""Gated DeltaNet recurrence in float: the reference that bounds the error of the hardware.

One value head keeps a state ``S`` of shape [d_k, d_v]. For every token, with unit-norm ``q`` and
``k``, decay ``g = exp(log_decay)`` and write strength ``beta``::

    S  <- g S                          decay first
    dv  = beta (v - S^T k)             what the state lacks to return v for k
    S  <- S + k dv^T
    o   = S^T q / sqrt(d_k)

which is ``S_t = g S_{t-1} (I - beta k k^T) + beta v k^T`` with the transposed layout of the paper
(Yang, Kautz, Hatamizadeh: Gated Delta Networks, arXiv 2412.06464). Gates, order of operations and
the normalisation inside the recurrence are those of Qwen3-Next and flash-linear-attention.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.floating[Any]]
FloatType = type[np.float32] | type[np.float64]

L2_NORM_EPSILON = 1e-6


def l2_normalise(x: FloatArray, eps: float = L2_NORM_EPSILON) -> FloatArray:
    """Scale vectors to unit length: ``x / sqrt(sum(x^2) + eps)`` over the last axis.

    Parameters
    ----------
    x : array [..., d]
        Any float dtype, which the result keeps.
    eps : float
        Added to the squared length, so that a zero vector stays zero.
    """
    length = np.sqrt(np.sum(np.square(x), axis=-1, keepdims=True) + x.dtype.type(eps))
    unit: FloatArray = x / length
    return unit


def decay_and_write_gates(
    a: npt.ArrayLike,
    b: npt.ArrayLike,
    a_log: npt.ArrayLike,
    dt_bias: npt.ArrayLike,
    *,
    dtype: FloatType = np.float64,
) -> tuple[FloatArray, FloatArray]:
    """Turn the raw gate inputs of a layer into decay and write strength.

    ``log_decay = -exp(a_log) softplus(a + dt_bias)`` and ``beta = sigmoid(b)``.

    Parameters
    ----------
    a, b : array [tokens, value_heads]
        Raw projections of the decay and of the write gate.
    a_log, dt_bias : array [value_heads]
        Constants of the layer.
    dtype : float32 or float64
        Precision of the calculation and of the results.

    Returns
    -------
    log_decay : array [tokens, value_heads]
        Natural logarithm of the decay, at most 0.
    beta : array [tokens, value_heads]
        Write strength, 0 to 1.

    Raises
    ------
    ValueError
        If a shape does not match or a value is not finite.
    TypeError
        If an array is not of a float dtype.
    """
    a = _finite("a", a, dtype, dimensions=("tokens", "value_heads"))
    value_heads = a.shape[1]
    b = _finite("b", b, dtype, shape=a.shape)
    a_log = _finite("a_log", a_log, dtype, shape=(value_heads,))
    dt_bias = _finite("dt_bias", dt_bias, dtype, shape=(value_heads,))
    log_decay = -np.exp(a_log) * np.logaddexp(dtype(0), a + dt_bias)
    beta = dtype(0.5) * (dtype(1) + np.tanh(dtype(0.5) * b))  # sigmoid that cannot overflow
    return log_decay, beta


def gated_delta_recurrence(
    q: npt.ArrayLike,
    k: npt.ArrayLike,
    v: npt.ArrayLike,
    log_decay: npt.ArrayLike,
    beta: npt.ArrayLike,
    *,
    state: npt.ArrayLike | None = None,
    normalise: bool = True,
    dtype: FloatType = np.float64,
) -> tuple[FloatArray, FloatArray]:
    """Run the recurrence over a sequence, token by token, all heads of one layer at once.

    Value head ``h`` uses query/key head ``floor(h / ratio)`` with ``ratio = value_heads /
    qk_heads``: neighbouring value heads share (Qwen3-Next), unlike the tiled order ``h mod
    qk_heads`` that some other programs use after reordering the weights.

    Parameters
    ----------
    q, k : array [tokens, qk_heads, d_k]
        Queries and keys.
    v : array [tokens, value_heads, d_v]
        Values; ``value_heads`` is a multiple of ``qk_heads``.
    log_decay : array [tokens, value_heads]
        Natural logarithm of the decay, at most 0; minus infinity clears the state.
    beta : array [tokens, value_heads]
        Write strength, 0 to 1.
    state : array [value_heads, d_k, d_v], optional
        State before the first token, key index first; zero if absent. It is left unchanged.
    normalise : bool
        Scale every query and key to unit length first. Pass false if they already are.
    dtype : float32 or float64
        Precision of the calculation and of the results.

    Returns
    -------
    o : array [tokens, value_heads, d_v]
        Outputs, scaled by ``1 / sqrt(d_k)``.
    state : array [value_heads, d_k, d_v]
        State after the last token.

    Raises
    ------
    ValueError
        If a shape does not match, a value is not finite, or a gate is out of its range.
    TypeError
        If an array is not of a float dtype.
    """
    q = _finite("q", q, dtype, dimensions=("tokens", "qk_heads", "d_k"))
    tokens, qk_heads, d_k = q.shape
    k = _finite("k", k, dtype, shape=q.shape)
    v = _finite("v", v, dtype, dimensions=("tokens", "value_heads", "d_v"))
    value_heads, d_v = v.shape[1:]
    if v.shape[0] != tokens:
        raise ValueError(f"v has {v.shape[0]} tokens but q has {tokens}; pass the same number")
    if qk_heads == 0 or value_heads == 0 or value_heads % qk_heads:
        raise ValueError(
            f"{value_heads} value heads cannot share {qk_heads} query/key heads evenly; "
            "the number of value heads must be a positive multiple"
        )
    log_decay = _float_array("log_decay", log_decay, dtype, shape=(tokens, value_heads))
    if not np.all(log_decay <= 0):
        raise ValueError(
            "log_decay has values above 0 or NaN; it is the natural logarithm of a decay "
            "between 0 and 1, as decay_and_write_gates returns it"
        )
    beta = _finite("beta", beta, dtype, shape=(tokens, value_heads))
    if not np.all((beta >= 0) & (beta <= 1)):
        raise ValueError("beta has values outside 0 to 1; pass sigmoid(b), not b itself")
    current: FloatArray
    if state is None:
        current = np.zeros((value_heads, d_k, d_v), dtype)
    else:
        current = _finite("state", state, dtype, shape=(value_heads, d_k, d_v)).copy()

    if normalise:
        q, k = l2_normalise(q), l2_normalise(k)
    q = q * dtype(1 / np.sqrt(d_k))
    ratio = value_heads // qk_heads
    q, k = np.repeat(q, ratio, axis=1), np.repeat(k, ratio, axis=1)
    decay = np.exp(log_decay)
    o = np.empty_like(v)
    update = np.empty_like(current)
    for t in range(tokens):
        current *= decay[t, :, None, None]
        retrieved = (k[t, :, None, :] @ current)[:, 0]
        delta = beta[t, :, None] * (v[t] - retrieved)
        np.multiply(k[t, :, :, None], delta[:, None, :], out=update)
        current += update
        o[t] = (q[t, :, None, :] @ current)[:, 0]
    return o, current


def _float_array(
    name: str,
    value: npt.ArrayLike,
    dtype: FloatType,
    *,
    shape: tuple[int, ...] | None = None,
    dimensions: tuple[str, ...] = (),
) -> FloatArray:
    """Convert to `dtype`, refusing non-float arrays and any other shape or number of dimensions."""
    if dtype not in (np.float32, np.float64):
        raise TypeError(f"dtype is {dtype!r}; allowed are numpy.float32 and numpy.float64")
    array = np.asarray(value)
    if not np.issubdtype(array.dtype, np.floating):
        raise TypeError(f"{name} has dtype {array.dtype}; pass an array of a float dtype")
    if shape is not None and array.shape != shape:
        raise ValueError(f"{name} has shape {array.shape}; expected {shape}")
    if shape is None and array.ndim != len(dimensions):
        raise ValueError(f"{name} has shape {array.shape}; expected [{', '.join(dimensions)}]")
    with np.errstate(over="ignore"):  # what is too large becomes infinite, and is refused as that
        return array.astype(dtype, copy=False)


def _finite(
    name: str,
    value: npt.ArrayLike,
    dtype: FloatType,
    *,
    shape: tuple[int, ...] | None = None,
    dimensions: tuple[str, ...] = (),
) -> FloatArray:
    array = _float_array(name, value, dtype, shape=shape, dimensions=dimensions)
    if not np.all(np.isfinite(array)):
        raise ValueError(f"{name} has NaN or infinite values (or too large for {dtype.__name__})")
    return array
