<%doc>
Writes weights [rows, columns] as [columns, rows], in another type if that is wanted.

source, target  how they are stored
deep, across    rows and columns of a work-item
</%doc>\
<%
    value = target.convert(source, source.load("x", "from"))
%>\
${source.prelude}

__kernel void recurrent_turn(
    const __global ${source.storage} *x, const long x_start,
    __global ${target.storage} *y, const long y_start)
{
    x += x_start;
    y += y_start;
    const int first = get_global_id(0) * ${deep}, begin = get_global_id(1) * ${across};
    for (int column = begin; column < min(begin + ${across}, ${columns}); ++column)
        for (int row = first; row < min(first + ${deep}, ${rows}); ++row) {
            const int from = row * ${columns} + column, to = column * ${rows} + row;
            ${target.store("y", "to", value)}
        }
}
