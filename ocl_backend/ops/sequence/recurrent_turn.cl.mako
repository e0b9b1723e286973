<%doc>
Lays the weights of a hidden state [rows, columns] out as a step's product reads them, in another
type if that is wanted: blocks of `c.across` columns of the product, of each block one term of the
sums after the other. The last block ends in zeros.

c               ops.sequence.recurrent_kernels.WeightBlocks
at_once, terms  columns and terms that a work-item lays out
turned          whether the product's columns are rows of the weights, `row` says which
source, target  how they are stored
</%doc>\
<%
    # numbers that stay as they are are copied without a look at them
    raw = {2: "ushort", 4: "float"}[source.item_bytes]
    kinds = (raw, raw) if source is target else (source.storage, target.storage)
    value = target.convert(source, source.load("x", "from"))
    zero = target.store("y", "to", "0")
    write = "y[to] = x[from];" if source is target else target.store("y", "to", value)
    from_ = f"({row}) * {c.terms} + k" if turned else f"k * {c.columns} + column"
%>\
${target.prelude if target is source else source.prelude}

__kernel void recurrent_turn(
    const __global ${kinds[0]} *x, const long x_start, __global ${kinds[1]} *y, const long y_start)
{
    x += x_start;
    y += y_start;
    const int begin = get_global_id(1) * ${terms};
    for (int item = 0; item < ${at_once}; ++item) {
        const int column = get_global_id(0) * ${at_once} + item;
        if (column >= ${c.stride})
            return;
        const int first = column / ${c.across} * ${c.terms * c.across} + column % ${c.across};
        for (int k = begin; k < min(begin + ${terms}, ${c.terms}); ++k) {
            const int from = ${from_}, to = first + k * ${c.across};
            if (column < ${c.columns}) {
                ${write}
            } else {
                ${"y[to] = 0;" if source is target else zero}
            }
        }
    }
}
