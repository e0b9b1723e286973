<%doc>
A heading that sorts its table. Values: name (what is sorted by), label, kind (class of the cell),
sort (what the table is sorted by), query (a function: parameters of the page, with changes).
</%doc>
<%page args="name, label, kind, sort, query"/>
<% turned = f"-{name}" if sort == name else name %>\
<th class="${kind}" aria-sort="${'ascending' if sort == name else 'descending' if sort == '-' + name else 'none'}"><a href="?${query(sort=turned)}">${label}${" ▲" if sort == name else " ▼" if sort == "-" + name else ""}</a></th>\
