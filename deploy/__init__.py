"""Files for deploying the server: images, a chart, manifests, rules and dashboards."""
