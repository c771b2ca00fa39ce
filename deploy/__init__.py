"""What runs the server elsewhere: images, a chart, manifests, rules and dashboards."""
