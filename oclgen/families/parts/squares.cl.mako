<%doc>
Squares of 16 x 16 words that processors turn in registers. A def for other templates, no text of its
own.
</%doc>
<%!
    from oclgen.families.parts.squares import SQUARE, exchanged
%>\
<%doc>
Turns the vectors row0 to row15.

word        type of a word: ushort or uint
indent      before each line
</%doc>
<%def name="turn(word, indent)">\
${indent}${word}16 low;
% for distance in (8, 4, 2, 1):
% for i in range(SQUARE):
% if not i & distance:
<% other = f"row{i + distance}" %>\
${indent}low = row${i};
${indent}row${i} = (${word}16)(${exchanged("low", other, distance, 0)});
${indent}${other} = (${word}16)(${exchanged("low", other, distance, 1)});
% endif
% endfor
% endfor
</%def>
