"""Converts YAML to JSON, and checks manifests against the Kubernetes schemas. Runs in the environment of
pods.validator().

    python kube_validate.py load FILE               prints the documents of a YAML or JSON file as one array
    python kube_validate.py check VERSION... <JSON   reads an array of manifests; prints [[index, error]]
"""
import json
import sys

import kubernetes_validate
import yaml


def check(manifests, versions):
    faults = []
    for index, manifest in enumerate(manifests):
        for version in versions:
            version = kubernetes_validate.latest_version() if version == "latest" else version
            try:
                kubernetes_validate.validate(manifest, version, strict=True)
            except (kubernetes_validate.ValidationError, kubernetes_validate.SchemaNotFoundError) as error:
                faults.append([index, "%s: %s" % (version, getattr(error, "message", None) or error)])
    return faults


if sys.argv[1] == "load":
    with open(sys.argv[2]) as f:
        print(json.dumps(list(yaml.safe_load_all(f))))
else:
    print(json.dumps(check(json.load(sys.stdin), sys.argv[2:])))
