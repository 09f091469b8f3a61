"""Eight numbers at a time, inside compiled code: a vector type for numba with loads, stores and arithmetic.

Numba relies on LLVM's alias analysis for vectorisation, and counts references to every array. On rows of a few dozen
numbers both cost more than the arithmetic. Here a kernel is explicit: `pointer(array, start)` is a bare address,
`load(pointer, i)` the eight numbers from pointer[i], held in registers, and `+ - * /` act on all of them (a scalar
stands for eight copies). Nothing is checked: the caller pads its rows and keeps its arrays alive. Only LLVM's generic
vectors are used, so the same code serves every processor. Arithmetic keeps the order in which it is written, except
that a product and a sum may fuse; NaN and infinity keep their meaning.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import extending, types
from numba.core import cgutils
from numba.extending import models, register_model

# The caller of an intrinsic does not pass the typing context, which no annotation can say.
intrinsic: Any = extending.intrinsic

LANES = 8
_FUSE = ("contract",)


class Lanes(types.Type):
    """Eight numbers of one floating type."""

    def __init__(self, dtype: types.Float) -> None:
        self.dtype = dtype
        super().__init__(name=f"Lanes({dtype})")


def _vector(dtype: types.Type) -> ir.VectorType:
    kinds = {types.float32: ir.FloatType(), types.float64: ir.DoubleType(), types.int32: ir.IntType(32)}
    return ir.VectorType(kinds[dtype], LANES)


@register_model(Lanes)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager: Any, lanes: Lanes) -> None:
        super().__init__(manager, lanes, _vector(lanes.dtype))


def _address(builder: Any, pointer_type: types.CPointer, pointer: Any, index: Any) -> tuple[Any, int]:
    """Where the vector that starts at pointer[index] lies, and the alignment one may count on."""
    vector = _vector(pointer_type.dtype)
    place = builder.gep(pointer, [index], inbounds=True)
    return builder.bitcast(place, vector.as_pointer()), 4 if pointer_type.dtype in (types.float32, types.int32) else 8


def _splat(context: Any, builder: Any, value: Any, source: types.Type, dtype: types.Type) -> Any:
    value = context.cast(builder, value, source, dtype)
    vector = _vector(dtype)
    one = builder.insert_element(ir.Constant(vector, ir.Undefined), value, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(one, ir.Constant(vector, ir.Undefined), _mask([0] * LANES))


def _mask(lanes: list[int]) -> ir.Constant:
    return ir.Constant(ir.VectorType(ir.IntType(32), len(lanes)), lanes)


def _start(context: Any, builder: Any, array_type: types.Array, array: Any, start: Any) -> Any:
    data = context.make_array(array_type)(context, builder, array).data
    return builder.gep(data, [start], inbounds=True)


@intrinsic
def pointer(typing_context: Any, array: Any, start: Any) -> Any:
    """A bare pointer to array[start]: no shape, no reference count. The caller keeps the array alive."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _start(context, builder, signature.args[0], *args)

    return types.CPointer(array.dtype)(array, types.intp), generate


@intrinsic
def pointers(typing_context: Any, array: Any, starts: Any) -> Any:
    """One pointer into the flat `array` for each of a tuple of starts."""
    kind = types.UniTuple(types.CPointer(array.dtype), len(starts))

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        places = cgutils.unpack_tuple(builder, args[1])
        found = [_start(context, builder, signature.args[0], args[0], place) for place in places]
        return context.make_tuple(builder, kind, found)

    return kind(array, starts), generate


@intrinsic
def load(typing_context: Any, source: Any, index: Any) -> Any:
    """The eight numbers from source[index]."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place, align = _address(builder, signature.args[0], *args)
        return builder.load(place, align=align)

    return Lanes(source.dtype)(source, types.intp), generate


@intrinsic
def store(typing_context: Any, target: Any, index: Any, value: Any) -> Any:
    """Write eight numbers from target[index] on."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place, align = _address(builder, signature.args[0], args[0], args[1])
        builder.store(args[2], place, align=align)
        return context.get_dummy_value()

    return types.void(target, types.intp, Lanes(target.dtype)), generate


@intrinsic
def fill(typing_context: Any, like: Any, value: Any) -> Any:
    """Eight copies of `value`, in the type that `like` points to."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _splat(context, builder, args[1], signature.args[1], signature.args[0].dtype)

    return Lanes(like.dtype)(like, value), generate


@intrinsic
def where(typing_context: Any, keys: Any, index: Any, key: Any, yes: Any, no: Any) -> Any:
    """`yes` in the lanes where keys[index + lane] == key, `no` elsewhere."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place, align = _address(builder, signature.args[0], args[0], args[1])
        wanted = _splat(context, builder, args[2], types.intp, types.int32)
        return builder.select(builder.icmp_signed("==", builder.load(place, align=align), wanted), args[3], args[4])

    return no(keys, types.intp, types.intp, no, no), generate


@intrinsic
def look_up(typing_context: Any, table: Any, start: Any, keys: Any, index: Any, page: Any, no: Any) -> Any:
    """table[start + key] for the eight keys from keys[index], where they lie on `page` (eight keys each); else `no`."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        key_place, key_align = _address(builder, signature.args[2], args[2], args[3])
        found = builder.load(key_place, align=key_align)
        place, align = _address(builder, signature.args[0], args[0], builder.add(args[1], _times(builder, args[4])))
        entries = builder.load(place, align=align)
        value = _permute(builder, entries, found)
        pages = builder.ashr(found, ir.Constant(found.type, [LANES.bit_length() - 1] * LANES))
        wanted = _splat(context, builder, args[4], types.intp, types.int32)
        return builder.select(builder.icmp_signed("==", pages, wanted), value, args[5])

    return no(table, types.intp, keys, types.intp, types.intp, no), generate


def _permute(builder: Any, entries: Any, keys: Any) -> Any:
    """entries[key mod 8] in each lane; LLVM compiles this to one instruction where the processor has it."""
    lanes = builder.and_(keys, ir.Constant(keys.type, [LANES - 1] * LANES))
    value = ir.Constant(entries.type, ir.Undefined)
    for lane in range(LANES):
        at = ir.Constant(ir.IntType(32), lane)
        entry = builder.extract_element(entries, builder.extract_element(lanes, at))
        value = builder.insert_element(value, entry, at)
    return value


def _times(builder: Any, value: Any) -> Any:
    return builder.mul(value, ir.Constant(value.type, LANES))


def _reduce(builder: Any, vector: Any, step: Callable[[Any, Any], Any]) -> Any:
    """Fold halves onto each other: a fixed order, the same on every run."""
    half = LANES // 2
    while half:
        lanes = list(range(half, 2 * half))
        low = builder.shuffle_vector(vector, vector, _mask(list(range(half))))
        high = builder.shuffle_vector(vector, vector, _mask(lanes))
        vector = step(low, high)
        half //= 2
    return builder.extract_element(vector, ir.Constant(ir.IntType(32), 0))


def _larger(builder: Any, a: Any, b: Any) -> Any:
    return builder.select(builder.fcmp_ordered("<", a, b), b, a)


@intrinsic
def total(typing_context: Any, value: Any) -> Any:
    """The sum of the eight."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _reduce(builder, args[0], builder.fadd)

    return value.dtype(value), generate


@intrinsic
def largest(typing_context: Any, value: Any) -> Any:
    """The largest of the eight."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _reduce(builder, args[0], lambda a, b: _larger(builder, a, b))

    return value.dtype(value), generate


@intrinsic
def larger(typing_context: Any, a: Any, b: Any) -> Any:
    """Lane by lane, b where a < b, else a."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _larger(builder, *args)

    return a(a, a), generate


@intrinsic
def all_at_least(typing_context: Any, value: Any, bound: Any) -> Any:
    """Whether every lane is at least `bound`; NaN is not."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        bound = _splat(context, builder, args[1], signature.args[1], signature.args[0].dtype)
        holds = builder.fcmp_ordered(">=", args[0], bound)
        bits = builder.bitcast(holds, ir.IntType(LANES))
        return builder.icmp_unsigned("==", bits, ir.Constant(ir.IntType(LANES), -1))

    return types.boolean(value, bound), generate


def _arithmetic(symbol: Callable[[Any, Any], Any], name: str) -> None:
    @extending.type_callable(symbol)
    def find_type(context: Any) -> Any:
        def typer(a: Any, b: Any) -> Any:
            if isinstance(a, Lanes) and (a == b or isinstance(b, types.Float)):
                return a
            return b if isinstance(b, Lanes) and isinstance(a, types.Float) else None

        return typer

    @extending.lower_builtin(symbol, Lanes, Lanes)
    @extending.lower_builtin(symbol, Lanes, types.Float)
    @extending.lower_builtin(symbol, types.Float, Lanes)
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        dtype = signature.return_type.dtype
        pair = [
            arg if isinstance(kind, Lanes) else _splat(context, builder, arg, kind, dtype)
            for arg, kind in zip(args, signature.args, strict=True)
        ]
        return getattr(builder, name)(*pair, flags=_FUSE)


for _symbol, _name in (
    (operator.add, "fadd"),
    (operator.sub, "fsub"),
    (operator.mul, "fmul"),
    (operator.truediv, "fdiv"),
):
    _arithmetic(_symbol, _name)


@intrinsic
def exp(typing_context: Any, value: Any) -> Any:
    """The exponential of numbers that are at most about zero; 0 below the normal range; NaN passes through.

    2^n times the Taylor polynomial of the rest, which is at most log(2)/2: accurate to a few units in the last place.
    """
    single = value.dtype is types.float32
    degree, bits, bias, least = (7, 23, 127, -87.0) if single else (13, 52, 1023, -708.0)
    # log 2 in two parts, the first with few enough digits for its multiples to be exact.
    high, low = (0.693359375, -2.12194440e-4) if single else (6.93147180369123816490e-01, 1.90821492927058770002e-10)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        vector = _vector(value.dtype)
        whole = ir.VectorType(ir.IntType(32 if single else 64), LANES)

        def constant(number: float) -> ir.Constant:
            return ir.Constant(vector, [number] * LANES)

        x = args[0]
        under = builder.fcmp_ordered("<", x, constant(least))
        x = builder.select(under, constant(least), x)
        rint = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(vector, [vector]), f"llvm.rint.v{LANES}f{32 if single else 64}"
        )
        n = builder.call(rint, [builder.fmul(x, constant(1.4426950408889634))])
        rest = builder.fsub(x, builder.fmul(n, constant(high)), flags=_FUSE)
        rest = builder.fsub(rest, builder.fmul(n, constant(low), flags=_FUSE), flags=_FUSE)
        factor = 1.0
        factors = [factor]
        for power in range(1, degree + 1):
            factor /= power
            factors.append(factor)
        series = constant(factors[degree])
        for power in range(degree - 1, -1, -1):
            series = builder.fadd(builder.fmul(series, rest, flags=_FUSE), constant(factors[power]), flags=_FUSE)
        shifted = builder.add(builder.fptosi(n, whole), ir.Constant(whole, [bias] * LANES))
        power_of_two = builder.bitcast(builder.shl(shifted, ir.Constant(whole, [bits] * LANES)), vector)
        return builder.select(under, constant(0.0), builder.fmul(series, power_of_two))

    return value(value), generate


__all__ = [
    "LANES",
    "Lanes",
    "all_at_least",
    "exp",
    "fill",
    "larger",
    "largest",
    "load",
    "look_up",
    "pointer",
    "store",
    "total",
    "where",
]
