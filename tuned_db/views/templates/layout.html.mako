<%doc>
Frame of every page of the service. Blocks: body. Values: title (text of tab and heading).
</%doc>
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${title} - oclgen</title>
<link rel="stylesheet" href="/style.css">
</head>
<body>
<nav><a href="/">oclgen records</a> | <a href="/problems">problems</a> | <a href="/compare">compare</a> | <a href="/openapi.json">API</a></nav>
<main>
<h1>${title}</h1>
${self.body()}
</main>
<footer>Rates count the operations of the direct algorithm: Winograd may pass the peak. "claimed": sent
by others, and not measured by who runs this service.</footer>
</body>
</html>
