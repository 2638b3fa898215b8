"""The protocol: routes with their roles, parameters, bodies, answers, problems and the document."""
