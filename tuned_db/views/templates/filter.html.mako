<%doc>
What narrows a list. Values: wanted (tuned_db.views.browse.Filter); choices (by part of the filter, what
can be chosen); hidden (further parameters that stay).
</%doc>
<%page args="wanted, choices, hidden"/>
% for name, value in hidden.items():
<input type="hidden" name="${name}" value="${value}">
% endfor
% for name, values in choices.items():
<select name="${name}" aria-label="${name}">
<option value="">any ${name}</option>
% for value in values:
<option ${"selected" if value == getattr(wanted, name) else ""}>${value}</option>
% endfor
</select>
% endfor
<input name="text" value="${wanted.text}" maxlength="100" placeholder="part of the problem" aria-label="part of the problem">
<button>show</button>
