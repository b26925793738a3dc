#!/usr/bin/env python
r"""Trains sentence vectors on pairs of sentences, evaluates their cosines, and writes vectors.

Train on scored pairs in /data/stsb/train.tsv, evaluate on dev.tsv, and write the vectors and the
cosines of the pairs in test.tsv:

    python run_sentence_similarity.py --data_dir=/data/stsb --text_a_column=sentence1 \
        --text_b_column=sentence2 --label_column=score --score_scale=5 --output_dir=/data/out \
        --vocab_file=vocab.txt --bert_config_file=bert_config.json \
        --init_checkpoint=bert_model.ckpt --do_train --do_eval --do_predict

With --loss=in_batch_negatives it trains on pairs of sentences that mean the same, without scores.
Without --text_b_column, --do_predict writes the vectors of single sentences.
"""

from bert_tf.tasks import program

main = program.main_of("sentences")

if __name__ == "__main__":
    program.run(main)
