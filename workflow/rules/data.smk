# Contract: config/datasets.yaml names the corpora. Makes {ROOT}/{scale}/data/{dataset}/: the
# memory-mapped shards, a copy of the tokenizer and the manifest.json that describes them (written last), in
# {ROOT}/{scale}/tokenizers/{dataset}/ the tokenizer (a dataset with a base takes over the base's), in
# {ROOT}/{scale}/frequent_ngrams/{dataset}/ the frequent n-grams.


rule train_tokenizer:
    input:
        corpus=get_corpus,
        base=get_base_tokenizer,
        description=lambda wildcards: get_descriptions(get_base_tokenizer(wildcards)),
    output:
        tokenizer=f"{ROOT}/{{scale}}/tokenizers/{{dataset}}/tokenizer.json",
        description=f"{ROOT}/{{scale}}/tokenizers/{{dataset}}/tokenizer_config.json",
    log:
        f"{ROOT}/{{scale}}/logs/train_tokenizer/{{dataset}}.log",
    benchmark:
        f"{ROOT}/{{scale}}/benchmarks/train_tokenizer/{{dataset}}.tsv"
    params:
        cfg=get_dataset_slice,
        code=JOBS.code("train_tokenizer"),
    message:
        "Train the tokenizer of {wildcards.dataset}"
    shell:
        "difftransformer train_tokenizer --slice {params.cfg} --base '{input.base}'"
        " --output {output.tokenizer} --log {log}"


rule tokenize:
    input:
        corpus=get_corpus,
        tokenizer=get_tokenizer,
        description=lambda wildcards: get_descriptions(get_tokenizer(wildcards)),
    output:
        shards=directory(f"{ROOT}/{{scale}}/data/{{dataset}}/shards"),
        tokenizer=f"{ROOT}/{{scale}}/data/{{dataset}}/tokenizer.json",
        description=f"{ROOT}/{{scale}}/data/{{dataset}}/tokenizer_config.json",
        manifest=f"{ROOT}/{{scale}}/data/{{dataset}}/manifest.json",
    log:
        f"{ROOT}/{{scale}}/logs/tokenize/{{dataset}}.log",
    benchmark:
        f"{ROOT}/{{scale}}/benchmarks/tokenize/{{dataset}}.tsv"
    threads: lambda wildcards: JOBS.workers(wildcards.dataset, CORES)
    params:
        root=lambda wildcards: ROOT,
        cfg=get_dataset_slice,
        code=JOBS.code("tokenize"),
    message:
        "Tokenize {wildcards.dataset}"
    shell:
        "difftransformer tokenize --slice {params.cfg} --code {params.code}"
        " --tokenizer '{input.tokenizer}' --corpus '{input.corpus}' --output {output.manifest}"
        " --workers {threads}"
        " --results {params.root} --log {log}"


rule count_ngrams:
    input:
        data=f"{ROOT}/{{scale}}/data/{{dataset}}/manifest.json",
        shards=ancient(f"{ROOT}/{{scale}}/data/{{dataset}}/shards"),
    output:
        ngrams=f"{ROOT}/{{scale}}/frequent_ngrams/{{dataset}}/{{suite}}.npy",
        sums=f"{ROOT}/{{scale}}/frequent_ngrams/{{dataset}}/{{suite}}.sha256.json",
    log:
        f"{ROOT}/{{scale}}/logs/count_ngrams/{{dataset}}/{{suite}}.log",
    benchmark:
        f"{ROOT}/{{scale}}/benchmarks/count_ngrams/{{dataset}}/{{suite}}.tsv"
    params:
        cfg=get_ngrams_slice,
        code=JOBS.code("count_ngrams"),
    message:
        "Find the n-grams that are frequent in {wildcards.dataset}"
    shell:
        "difftransformer count_ngrams --slice {params.cfg} --dataset {input.data}"
        " --output {output.ngrams} --log {log}"
