# Contract: config/datasets.yaml names the corpora. Makes {ROOT}/{scale}/data/{dataset}/: the
# memory-mapped shards, a copy of the tokenizer and the manifest.json that describes them (written last), in
# {ROOT}/{scale}/tokenizers/{dataset}/ the tokenizer (a dataset with a base takes over the base's), in
# {ROOT}/{scale}/frequent_ngrams/{dataset}/ the frequent n-grams.


rule train_tokenizer:
    input:
        unpack(tokenizer_inputs),
    output:
        tokenizer=f"{ROOT}/{{scale}}/tokenizers/{{dataset}}/tokenizer.json",
        description=f"{ROOT}/{{scale}}/tokenizers/{{dataset}}/tokenizer_config.json",
    log:
        f"{ROOT}/{{scale}}/logs/train_tokenizer/{{dataset}}.log",
    benchmark:
        f"{ROOT}/{{scale}}/benchmarks/train_tokenizer/{{dataset}}.tsv"
    params:
        rule="train_tokenizer",
        config=lambda wildcards: JOBS.dataset_slice(wildcards.dataset),
        code=JOBS.code("train_tokenizer"),
        files=files,
    message:
        "Train the tokenizer of {wildcards.dataset}"
    shell:
        STEP


rule tokenize:
    input:
        unpack(tokenize_inputs),
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
        rule="tokenize",
        config=lambda wildcards: JOBS.dataset_slice(wildcards.dataset),
        code=JOBS.code("tokenize"),
        files=files,
    message:
        "Tokenize {wildcards.dataset}"
    shell:
        STEP


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
        rule="count_ngrams",
        config=lambda wildcards: JOBS.ngrams_slice(wildcards.dataset, wildcards.suite),
        code=JOBS.code("count_ngrams"),
        files=files,
    message:
        "Find the n-grams that are frequent in {wildcards.dataset}"
    shell:
        STEP
